-- retry: a dead letter goes back into the work stream, under a fresh time, unless that would serve nobody or undo what came later.
-- ARGV 2: letter (its ID), slug, rid, request (1 where somebody waits for a reply), foreign (1: it has had no effect yet),
--   at (the ID it had in the work stream), now (1: given effect, it changes whatever the agent works on now).
-- Returns {OK, stream ID}, {GONE}, {ANSWERED, state}, {FORGOTTEN}, {LATE}, {OVERTAKEN} or {FULL}.
local found = call('XRANGE', DEAD, args.letter, args.letter)[1]
if not found then return { 'GONE', '' } end

local fields, deadline, times = {}, 0, 0
for i = 1, #found[2], 2 do
  local name, value = found[2][i]:match('^was:(.*)$'), found[2][i + 1]
  if name == 'retried' then
    times = tonumber(value) or 0
  elseif name then
    if name == 'deadline' then deadline = tonumber(value) or 0 end
    fields[#fields + 1] = name
    fields[#fields + 1] = value
  end
end
fields[#fields + 1] = 'retried'
fields[#fields + 1] = string.format('%.0f', times + 1)

if args.request == 1 then
  local r = call('HMGET', REQUEST, 'state', 'seen', 'born')
  if r[1] then return { 'ANSWERED', r[1] } end
  if args.foreign == 0 then
    if not r[3] then return { 'FORGOTTEN', '' } end
    if not r[2] and deadline < ms then return { 'LATE', '' } end
  end
  if call('XLEN', EVENTS) >= cfg.stream_cap then return { 'FULL', '' } end
end

if args.now == 1 then
  local h = call('HMGET', AGENT, 'task', 'began', 'ended')
  local task, began, ended = h[1], h[2], h[3]
  if (task and not (began and before(began, args.at))) or (ended and before(args.at, ended)) then return { 'OVERTAKEN', '' } end
end

local x = call('XADD', EVENTS, '*', unpack(fields))
if args.request == 1 then
  call('SADD', WAITING, x)
  call('PEXPIRE', WAITING, cfg.remember)
end
call('XDEL', DEAD, args.letter)
return { 'OK', x }
