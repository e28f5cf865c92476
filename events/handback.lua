-- handback: what a leaving consumer still holds can be claimed by the others at once. One that holds nothing is deleted: checked
-- and deleted in one script, for deleting a consumer drops what is pending with it.
-- ARGV 2: consumer. Returns how many entries were handed back (at most 1000 a call).
local list = redis.pcall('XPENDING', EVENTS, cfg.group, '-', '+', 1000, args.consumer)
if list.err then return 0 end
for _, p in ipairs(list) do call('XCLAIM', EVENTS, cfg.group, cfg.parked, 0, p[1], 'IDLE', cfg.claim_idle, 'JUSTID') end
if #list == 0 then redis.pcall('XGROUP', 'DELCONSUMER', EVENTS, cfg.group, args.consumer) end
return #list
