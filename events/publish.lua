-- publish: the only way into the work stream. An end takes effect here.
-- ARGV 2: slug, rid (of a request, else empty), type, task, project, owner (of agent.stopped: who stopped, empty for an
--   operator's removal; of work.started: "container" where it says so), gateway, fields (the entry's, name and value in turn).
-- Returns {OK, stream ID, deadline ms or ''}, {KNOWN, stream ID, ''}, {MOOT, stream ID or '', ''} or {FULL, which, ''}.
local kind = args.type
local h = call('HMGET', AGENT, 'owner', 'task', 'project')
local owner, task, project = h[1], h[2], h[3]

local stopped = kind == 'agent.stopped' and args.owner ~= ''
if stopped and owner ~= args.owner then return { 'MOOT', '', '' } end

-- A stop goes by the hash's owner alone: that one may have come back after its first stop.
if not stopped then
  local old = call('GET', PUBLISHED)
  if old == '0-0' then return { 'MOOT', '', '' } end
  if old then return { 'KNOWN', old, '' } end
end

local request = kind == 'sandbox.requested' or kind == 'logs.requested'
if request then
  if call('XLEN', EVENTS) >= cfg.stream_cap then return { 'FULL', 'stream', '' } end
  if call('SCARD', WAITING) >= cfg.agent_cap then
    -- Whatever took an entry away without a word is found out here: the stream is the truth.
    for _, x in ipairs(call('SMEMBERS', WAITING)) do
      if #call('XRANGE', EVENTS, x, x) == 0 then call('SREM', WAITING, x) end
    end
    if call('SCARD', WAITING) >= cfg.agent_cap then return { 'FULL', 'agent', '' } end
  end
end

local moot = kind == 'work.ended' and args.task ~= '' and task and task ~= args.task
local changed = kind == 'work.started' and task and (task ~= args.task or project ~= args.project)
local ends = (kind == 'work.ended' and not moot) or (kind == 'agent.stopped' and not stopped) or changed

local fields = args.fields
local function add(name, value)
  fields[#fields + 1] = name
  fields[#fields + 1] = value
end
local deadline = ''
if request then
  deadline = string.format('%.0f', ms + cfg.accept)
  add('deadline', deadline)
end
if ends or stopped then add('ends', '1') end
local x
if moot then
  -- Of another engagement, whose sandbox ended when this one began: remembered, so that it stays so; nothing is to be done.
  x = '0-0'
else
  x = call('XADD', EVENTS, '*', unpack(fields))
end
if not stopped then call('SET', PUBLISHED, x, 'PX', cfg.remember) end
if moot then return { 'MOOT', '', '' } end

known()
if ends then stop(x, kind) end
if stopped then leave('publish') end
if changed or kind == 'work.ended' then call('HDEL', AGENT, 'task', 'project', 'owned') end
if kind == 'work.ended' then call('HSET', AGENT, 'over', 1) end
if kind == 'work.started' then
  call('HDEL', AGENT, 'over')
  call('HSET', AGENT, 'task', args.task, 'project', args.project, 'began', x)
  if args.owner == 'container' then call('HSET', AGENT, 'owned', 1) end
end
if request then
  call('SADD', WAITING, x)
  call('PEXPIRE', WAITING, cfg.remember)
  call('HSETNX', REQUEST, 'born', x)
  call('HSET', REQUEST, 'gateway', args.gateway, 'slug', args.slug)
  call('PEXPIRE', REQUEST, cfg.remember)
  audit_log('request', 'rid', args.rid, 'born', x)
end
return { 'OK', x, deadline }
