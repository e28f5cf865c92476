-- tell: one progress entry, under the lease, while no terminal reply stands.
-- ARGV 2: epoch. ARGV 3: the line (JSON). Returns 1 when it was written, else 0.
if call('HGET', AGENT, 'lease') ~= args.epoch or call('HEXISTS', REQUEST, 'state') == 1 then return 0 end
progress(ARGV[3])
return 1
