-- finish: an entry that needs no reply, or is a dead letter. Only while it is the caller's.
-- ARGV 2: reason (why it is kept among the dead letters; absent when it is not), cause (the kind of reason).
-- Returns 1, or 0 when it is another's by now.
if not mine() then return 0 end
if args.reason then
  letter(args.cause, args.reason)
  if args.rid ~= '' and call('HEXISTS', REQUEST, 'state') == 0 then say('exhausted', {}) end
end
finish()
return 1
