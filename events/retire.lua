-- retire: decides the removal of a container that nobody has claimed. From then on nobody can. KEYS 16: its pool.
-- ARGV 2: id, engine. Returns CLAIMED, or DEAD: then, and only then, remove it, by ID.
local key = cfg.claim .. args.id
if call('HEXISTS', key, 'slug') == 1 then return 'CLAIMED' end
call('LREM', KEYS[16], 0, args.id)
call('HSET', key, 'retired', 1)
call('PEXPIRE', key, 2 * cfg.ttl)
audit_log('retire', 'e', args.engine, 'c', args.id)
return 'DEAD'
