-- beat: extends the lease and keeps the entry with its holder. The epoch is the holder's token: whoever has it may claim the entry back.
-- ARGV 2: epoch. Returns FENCED or OK.
if call('HGET', AGENT, 'lease') ~= args.epoch then return 'FENCED' end
audit_log('beat', 'ep', args.epoch, 'lease', call('HGET', AGENT, 'lease') or '')
redis.pcall('XCLAIM', EVENTS, cfg.group, args.consumer, 0, args.entry, 'JUSTID')
call('HSET', AGENT, 'until', string.format('%.0f', ms + cfg.lease))
count()
return 'OK'
