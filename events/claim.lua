-- claim: takes the oldest container of the first pool that has one, for the run that holds the lease, and writes what it was
-- claimed for: the tenancy in the hash, for whatever changes that takes the lease away. KEYS from 16 on: the pools.
-- ARGV 2: epoch, engine, nonce (of this call).
-- Returns {FENCED}, {EMPTY} or {OK, container ID, which pool (from 1), born, task, project, owner}.
local lease = call('HGET', AGENT, 'lease')
if lease ~= args.epoch then return { 'FENCED' } end
local h = call('HMGET', AGENT, 'task', 'project', 'owner')
local task, project, owner = h[1] or '', h[2] or '', h[3] or ''
local born = call('HGET', REQUEST, 'born') or args.entry

-- The answer to this very call was lost on its way, and the client has sent it again.
for _, id in ipairs(call('SMEMBERS', CLAIMS)) do
  local c = call('HMGET', cfg.claim .. id, 'nonce', 'pool')
  if c[1] == args.nonce then return { 'OK', id, c[2], born, task, project, owner } end
end

for i = 16, #KEYS do
  for _, id in ipairs(call('LRANGE', KEYS[i], 0, -1)) do
    call('LREM', KEYS[i], 0, id)
    if not claimed(id) then
      claim(id, 'epoch', args.epoch, 'born', born, 'task', task, 'project', project, 'owner', owner, 'nonce', args.nonce, 'pool', i - 15)
      audit_log('claim', 'own', owner, 'ep', args.epoch, 'lease', lease, 'e', args.engine, 'c', id, 'born', born, 'task', task, 'project', project)
      return { 'OK', id, tostring(i - 15), born, task, project, owner }
    end
  end
end
return { 'EMPTY' }
