-- keep: one worker on a host tends its pools, as long as it says so in time; the others are known to be there.
-- KEYS 16: keeper (the name of the worker that tends them), 17: keepers (worker -> the millisecond until which it lives).
-- ARGV 2: worker, life (ms). Returns 1, or 0 when another tends them.
local keeper, keepers = KEYS[16], KEYS[17]
call('ZADD', keepers, string.format('%.0f', ms + args.life), args.worker)
call('ZREMRANGEBYSCORE', keepers, '-inf', string.format('%.0f', ms))
if call('PTTL', keepers) < args.life then call('PEXPIRE', keepers, args.life) end
local holder = call('GET', keeper)
if holder and holder ~= args.worker then return 0 end
call('SET', keeper, args.worker, 'PX', args.life)
return 1
