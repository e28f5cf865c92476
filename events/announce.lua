-- announce: tells every worker that a project has changed. KEYS 16: the stream of changed projects, which belongs to no agent.
-- ARGV 2: project (its slug). Returns 1.
local PROJECTS = KEYS[16]
call('XADD', PROJECTS, 'MAXLEN', '~', 100, '*', 'project', args.project)
call('PEXPIRE', PROJECTS, cfg.reply_ttl)
return 1
