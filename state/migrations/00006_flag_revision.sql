-- +goose Up

-- A copy of a flag is overwritten by later ones only, so a row stays when its value is removed.
CREATE SEQUENCE sandboxd.flag_revision;
ALTER TABLE sandboxd.flags
    ALTER COLUMN value DROP NOT NULL, -- NULL: none is set
    ADD COLUMN revision bigint NOT NULL DEFAULT nextval('sandboxd.flag_revision'); -- grows with each change

-- +goose Down
DELETE FROM sandboxd.flags WHERE value IS NULL;
ALTER TABLE sandboxd.flags ALTER COLUMN value SET NOT NULL, DROP COLUMN revision;
DROP SEQUENCE sandboxd.flag_revision;
