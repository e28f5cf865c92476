-- giveup: a run that has made nothing goes back to the stream, for any worker to take at once. It does not count as an attempt.
-- ARGV 2: epoch. Returns FENCED or OK.
if call('HGET', AGENT, 'lease') ~= args.epoch then return 'FENCED' end
call('HDEL', AGENT, 'lease', 'until', 'nonce')
count()
call('HINCRBY', REQUEST, 'tries', -1)
redis.pcall('XCLAIM', EVENTS, cfg.group, cfg.parked, 0, args.entry, 'IDLE', cfg.claim_idle, 'JUSTID')
return 'OK'
