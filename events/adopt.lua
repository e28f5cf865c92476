-- adopt: a live container of a live owner, which Redis has forgotten, is recorded again, and its claim with it.
-- ARGV as in fate.lua; ARGV 3: the entry (JSON). Under the lease of its own epoch a run may adopt: nobody else makes one then.
-- Returns OK or fate.lua's verdict.
local v = verdict()
if v ~= 'LOST' then return v end
if leased() and not leased(args.own_epoch) then return 'BUSY' end
known()
call('HSETNX', AGENT, 'task', args.task)
call('HSETNX', AGENT, 'project', args.project)
call('HSETNX', AGENT, 'owner', args.owner)
if args.owner ~= 'lease' then call('HSET', AGENT, 'owned', 1) end
call('HSET', RECORD, args.engine, ARGV[3])
mark(args.id, 'recorded')
if args.pooled == 1 and not claimed(args.id) then
  claim(args.id, 'epoch', args.epoch, 'born', args.born, 'task', args.task, 'project', args.project, 'owner', args.owner)
end
slide()
shelter(cjson.decode(ARGV[3]).host)
audit_log('adopt', 'own', call('HGET', AGENT, 'owner') or '', 'e', args.engine, 'c', args.id, 'born', args.born, 'feats', table.concat(cjson.decode(ARGV[3]).features, ','))
return 'OK'
