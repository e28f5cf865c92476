-- forget: a claimed container was removed, so its claim goes, if it is this agent's; for no agent, the mark that it was
-- retired goes: the durable store knows better. ARGV 2: id. Returns 1 or 0.
local key = cfg.claim .. args.id
call('SREM', CLAIMS, args.id)
if (call('HGET', key, 'slug') or '') ~= args.slug then return 0 end
return call('DEL', key)
