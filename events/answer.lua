-- answer: a terminal reply, if none stands, and the end of the entry.
-- ARGV 2: state, refusal (JSON) or body (JSON) or neither, task; of a hit also asked (wants) and checked (engine -> container
--   ID, just now found alive); guarded (1: a request older than the watermark is stale, for the guards may have seen the next engagement).
-- Returns LOST, AGAIN (record or watermark have moved on; a hit only) or DONE.
if not mine() then return 'LOST' end
local born = call('HGET', REQUEST, 'born') or args.entry
local state, what = args.state, { refusal = args.refusal, body = args.body, task = args.task }
if args.checked then
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
