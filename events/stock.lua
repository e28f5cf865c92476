-- stock: a ready container goes into its pool, behind those that are there. KEYS 16: the pool. It lapses: of one that is not planned any
-- more nobody takes out what is gone, and whoever tends the pools puts in again what a lapse has taken out.
-- ARGV 2: id. Returns 1, or 0: it was claimed, may never be, or is in the pool already.
local pool = KEYS[16]
if claimed(args.id) then return 0 end
if set_of(call('LRANGE', pool, 0, -1))[args.id] then return 0 end
call('RPUSH', pool, args.id)
call('PEXPIRE', pool, 2 * cfg.ttl)
audit_log('stock', 'e', args.engine, 'c', args.id)
return 1
