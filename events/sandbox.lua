-- sandbox: the record as it stands. ARGV 2: slug, slide (1: give it its whole life again).
-- Returns {record, task, project, owner, ms until it lapses}, or nothing when there is none.
if call('EXISTS', RECORD) == 0 then return {} end
if args.slide == 1 then slide() end
local h = call('HMGET', AGENT, 'task', 'project', 'owner')
return { whole(), h[1] or '', h[2] or '', h[3] or '', call('PTTL', RECORD) }
