-- stumble: a handler has panicked over an entry. Other failures are not counted: what is out of reach comes back.
-- The last of KEYS: the panics over this entry. ARGV 2: reason (what was panicked with).
-- Returns how many there have been; negative when the entry is now a dead letter, 0 when it is another's by now.
if not mine() then return 0 end
local panics = KEYS[#KEYS]
local n = call('HINCRBY', panics, 'n', 1)
call('PEXPIRE', panics, cfg.remember)
if n < cfg.attempts then return n end
call('DEL', panics)
letter('panicked', 'its handler panicked ' .. n .. ' times; the last time over ' .. args.reason)
if args.rid ~= '' and call('HEXISTS', REQUEST, 'state') == 0 then say('exhausted', {}) end
finish()
return -n
