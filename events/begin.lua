-- begin: opens a request that has passed the guards.
-- ARGV 2: asked, set (wants), task, project, owner (what the guards saw alive), hash_owner (the hash's, read before they
--   looked), epoch (held by this run already, or ''), gone, moved (container IDs), deadline (ms, 0 for none), nonce (of this call),
--   room (1: the caller can take a run on), ahead (how many wait in the caller's own line).
-- Returns {LOST}, {DONE, state}, {AGAIN}, {BUSY}, {FULL, how many live}, {WAITED, ms}, {HIT, born, record, '', ''} or
--   {RUN, born, record, epoch, answered, ms waited for room}.
if not mine() then return { 'LOST' } end
call('HSETNX', REQUEST, 'born', args.entry)
call('PEXPIRE', REQUEST, cfg.remember)
local r = call('HMGET', REQUEST, 'born', 'state')
local born, said = r[1], r[2]
local function done(state, what)
  say(state, what or {})
  finish()
  return { 'DONE', said or state }
end

if said and (said ~= 'ok' or covers(args.set)) then return done(said) end
if not after(born) then return done('stale') end

local h = call('HMGET', AGENT, 'task', 'project', 'owner', 'owned', 'over', 'lease', 'epoch', 'nonce')
local task, project, owner, owned, over, lease, last, nonce = h[1], h[2], h[3], h[4], h[5], h[6], h[7], h[8]
-- The answer to this very call was lost on its way, and the client has sent it again.
if nonce == args.nonce and leased() then return { 'RUN', born, whole(), lease, said and '1' or '', '0' } end
if over then return { 'AGAIN' } end
if not task then
  call('HSET', AGENT, 'task', args.task, 'project', args.project)
elseif task ~= args.task or project ~= args.project then
  return { 'AGAIN' }
end
known()
-- What the guards saw alive may be older than the owner that the hash has now.
if (owner or '') ~= args.hash_owner then return { 'AGAIN' } end
if args.owner == 'lease' and owned then return { 'AGAIN' } end
if owner and owner ~= args.owner then
  leave('begin')
  lease = false
end
audit_seen(args.owner, us)

if not said and args.deadline > 0 and args.deadline < ms and call('HEXISTS', REQUEST, 'seen') == 0 then
  return done('late', { task = args.task })
end

local gone, except = set_of(args.gone), set_of(args.gone)
for _, id in ipairs(args.moved) do except[id] = true end
if not said and covers(args.asked, except) then return { 'HIT', born, whole(), '', '' } end

local function park(consumer, time)
  call('XCLAIM', EVENTS, cfg.group, consumer, 0, args.entry, 'IDLE', math.max(cfg.claim_idle - time, 0), 'JUSTID')
  return { 'BUSY' }
end
if leased() and lease ~= args.epoch then
  if not said then announce('queued') end
  return park(cfg.parked, cfg.park)
end

-- What lives already, were it in part, is never refused for want of a place.
if call('EXISTS', RECORD) == 0 and crowded() then
  if said then return done(said) end
  return { 'FULL', string.format('%.0f', call('ZCARD', LIVE)) }
end
local since = call('HGET', REQUEST, 'line')
local waited = since and ms - tonumber(since) or 0
if args.room ~= 1 and not (leased() and lease == args.epoch) then
  if not said and waited > cfg.patience then return { 'WAITED', string.format('%.0f', waited) } end
  call('HSETNX', REQUEST, 'line', string.format('%.0f', ms))
  if not said then inline(args.ahead) end
  return park(cfg.lined, cfg.line)
end

if not lease or lease ~= args.epoch then
  if call('HINCRBY', REQUEST, 'tries', 1) > cfg.attempts then
    letter('exhausted', 'tried too often')
    return done('exhausted', { task = args.task })
  end
end
for _, engine in ipairs(call('HKEYS', RECORD)) do
  local id = entry(engine).id
  if gone[id] then
    call('HDEL', RECORD, engine)
    mark(id, 'revoked')
    audit_log('strike', 'e', engine, 'c', id)
  end
end
local epoch = string.format('%.0f', math.max((tonumber(last or 0)) + 1, tonumber(us)))
call('HSET', AGENT, 'epoch', epoch, 'lease', epoch, 'until', string.format('%.0f', ms + cfg.lease), 'owner', args.owner, 'nonce', args.nonce)
if args.owner ~= 'lease' then call('HSET', AGENT, 'owned', 1) end
count()
if not said then announce('accepted') end
return { 'RUN', born, whole(), epoch, said and '1' or '', string.format('%.0f', waited) }
