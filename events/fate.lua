-- fate: shared by revoke and adopt: what is to become of a container that somebody has come upon.
-- ARGV 2: engine, id, epoch, born, task, project, owner (the container's), first_life (1 or 0), own_epoch (the caller's, or ''),
--   pooled (1: it came from a pool, so it has a claim unless Redis has forgotten it), alive_task, alive_project (the engagement in the durable store, for when the hash has lost it), alive (the live owner).
local function verdict()
  -- Claimed for another by now, or about to be removed by who tends the pool.
  if args.pooled == 1 and claimed(args.id) and call('HGET', cfg.claim .. args.id, 'slug') ~= args.slug then return 'BUSY' end
  local r = entry(args.engine)
  if r and r.id == args.id then return leased() and 'BUSY' or 'RECORDED' end
  if not after(args.born) or call('HGET', FATE, args.id) == 'revoked' then return 'DEAD' end
  if args.epoch ~= args.own_epoch and leased(args.epoch) then return 'BUSY' end

  local h = call('HMGET', AGENT, 'since', 'epoch', 'task', 'project', 'owner', 'owned', 'over')
  local since, last, task, project, owner, owned, over = h[1], h[2], h[3], h[4], h[5], h[6], h[7]
  local lives = args.owner ~= '' and args.owner == args.alive and not (args.owner == 'lease' and owned)
  -- The hash has been thrown back to another owner: the stop of that one comes first.
  if owner and owner ~= args.owner and lives then return 'BUSY' end
  if not task and not over then task, project = args.alive_task, args.alive_project end

  local n = tonumber(args.epoch) or 0
  local forgotten = not since or n < tonumber(since) or n > tonumber(last or 0)
  local present = lives and task and task ~= '' and args.task == task and args.project == project
  if forgotten and present and not r and args.first_life == 1 and call('HEXISTS', FATE, args.id) == 0 then return 'LOST' end
  return 'DEAD'
end
