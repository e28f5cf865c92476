-- own: the engagement is owned by a container, if it is still this one. ARGV 2: slug, task, project. Returns 1 or 0.
local h = call('HMGET', AGENT, 'task', 'project')
if h[1] ~= args.task or h[2] ~= args.project then return 0 end
call('HSET', AGENT, 'owned', 1)
return 1
