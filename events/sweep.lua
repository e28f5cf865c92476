-- sweep: consumers of processes that are gone, and that hold nothing, go too: checked and deleted in one script, for
-- deleting a consumer drops what is pending with it. One whose idle time is not known (-1, the embedded server) is left.
-- ARGV 2: idle (ms). Returns how many.
local n = 0
local list = redis.pcall('XINFO', 'CONSUMERS', EVENTS, cfg.group)
if list.err then return 0 end
for _, c in ipairs(list) do
  local x = {}
  for i = 1, #c, 2 do x[c[i]] = c[i + 1] end
  if x.name ~= cfg.parked and x.pending == 0 and x.idle > args.idle then
    call('XGROUP', 'DELCONSUMER', EVENTS, cfg.group, x.name)
    n = n + 1
  end
end
return n
