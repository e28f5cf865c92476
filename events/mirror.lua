-- mirror: writes the durable store's value of the master switch, unless a later one is here already: readers of the store and
-- an operator who changes it race each other. KEYS 16 the mirror, 17 the revision of what it says. ARGV 2: value, revision (a
-- number that grows with each change in the store). Returns what the mirror says then.
local mirror, revision = KEYS[16], KEYS[17]
local held = call('GET', mirror)
if held and args.revision < tonumber(call('GET', revision) or 0) then return held end
call('SET', mirror, args.value)
call('SET', revision, string.format('%.0f', args.revision))
return args.value
