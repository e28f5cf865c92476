-- revoke: the one script that decides a removal. ARGV as in fate.lua.
-- Returns RECORDED, BUSY, LOST (adopt it) or DEAD: then, and only then, remove it, by ID. DEAD is for ever: the mark keeps
-- the ID out of any record.
local v = verdict()
if v == 'DEAD' then
  mark(args.id, 'revoked')
  audit_log('revoke', 'e', args.engine, 'c', args.id, 'born', args.born)
end
return v
