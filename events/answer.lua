-- answer: a terminal reply, if none stands, and the end of the entry.
-- ARGV 2: state, refusal (JSON) or body (JSON) or neither, task; of a hit also asked (wants) and checked (engine -> container
--   ID, just now found alive) and, where it was not begun, seen (task, project, owner, at: what the guards saw when, deadline: ms
--   or 0); guarded (1: a request older than the watermark is stale, for the guards may have seen the next engagement).
-- Returns LOST, AGAIN (record or watermark have moved on, or what was seen; a hit only) or DONE.

-- plain says that all is as the guards saw it, and that there is nothing for begin to change or to refuse.
local function plain(seen)
  local h = call('HMGET', AGENT, 'task', 'project', 'owner', 'owned', 'over')
  local r = call('HMGET', REQUEST, 'born', 'state', 'seen')
  return h[1] == seen.task and h[2] == seen.project and h[3] == seen.owner and not h[5] and not (seen.owner == 'lease' and h[4])
    and r[1] and not r[2] and (r[3] or seen.deadline == 0 or seen.deadline >= ms)
end

if not mine() then return 'LOST' end
local born = call('HGET', REQUEST, 'born') or args.entry
local state, what = args.state, { refusal = args.refusal, body = args.body, task = args.task }
if args.checked then
  if args.seen then
    if not plain(args.seen) then return 'AGAIN' end
    audit_seen(args.seen.owner, args.seen.at)
  end
  if not after(born) or not covers(args.asked) then return 'AGAIN' end
  for _, w in ipairs(args.asked) do
    if args.checked[w.e] ~= entry(w.e).id then return 'AGAIN' end
  end
  what = { wants = args.asked, task = call('HGET', AGENT, 'task') or nil }
elseif args.guarded == 1 and not after(born) then
  state, what = 'stale', {}
end
say(state, what)
finish()
return 'DONE'
