-- record: one engine, and with the last of what was asked for the reply. The lease stays: a sibling may still be on its way.
-- ARGV 2: epoch, engine, by (outcome and reason, JSON), asked (wants). ARGV 3: the entry (JSON).
-- A container from a pool must have been claimed for this agent. Returns FENCED, REVOKED or OK.
local raw = ARGV[3]
if call('HGET', AGENT, 'lease') ~= args.epoch then return 'FENCED' end
local new = cjson.decode(raw)
if call('HGET', FATE, new.id) == 'revoked' or not after(new.born) then return 'REVOKED' end
if new.pooled and call('HGET', cfg.claim .. new.id, 'slug') ~= args.slug then return 'REVOKED' end
call('HSET', RECORD, args.engine, raw)
mark(new.id, 'recorded')
slide()
shelter(new.host)
call('HSET', REQUEST, 'by:' .. args.engine, args.by)
audit_log('record', 'own', call('HGET', AGENT, 'owner') or '', 'ep', args.epoch, 'lease', call('HGET', AGENT, 'lease') or '', 'e', args.engine, 'c', new.id, 'born', new.born, 'feats', table.concat(new.features, ','))
if covers(args.asked) then say('ok', { wants = args.asked, task = call('HGET', AGENT, 'task') or nil }) end
return 'OK'
