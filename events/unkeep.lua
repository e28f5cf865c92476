-- unkeep: a worker leaves its host. KEYS as in keep.lua. ARGV 2: worker. Returns 1 when no other one is there, else 0.
local keeper, keepers = KEYS[16], KEYS[17]
if call('GET', keeper) == args.worker then call('DEL', keeper) end
call('ZREM', keepers, args.worker)
call('ZREMRANGEBYSCORE', keepers, '-inf', string.format('%.0f', ms))
return call('ZCARD', keepers) == 0 and 1 or 0
