-- settle: the run is over; the lease is released, the entry finished. What was recorded stays.
-- ARGV 2: epoch, refusal (JSON; absent when nothing that was asked for failed), asked (wants).
-- Returns FENCED, AGAIN (the record lapsed under the run) or OK.
if call('HGET', AGENT, 'lease') ~= args.epoch then return 'FENCED' end
call('HDEL', AGENT, 'lease', 'until', 'nonce')
count()
local task = call('HGET', AGENT, 'task') or nil
if call('HEXISTS', REQUEST, 'state') == 0 then
  if args.refusal then
    say('failed', { refusal = args.refusal, task = task })
  else
    if not covers(args.asked) then return 'AGAIN' end
    say('ok', { wants = args.asked, task = task })
  end
end
finish()
return 'OK'
