-- place: where tasks stand, and when an attempt may begin of those that wait: the soonest; for look, add and settle.
--
-- A task waits until it is due, for a pause and its probe, and for what the limits and a slow start allow to it and to
-- those of its group that go first. What somebody else's attempt may free any moment is looked at again soon.
--
-- A function that tells of a name: generation ('0' if unknown), then ms until it is due (0 or less: now), ms until its
-- lease ends, ms since it was buried, its record if asked for, of one that waits, also for its lease that is over, the ms
-- until an attempt may begin: each false where it does not apply; last what holds that up beyond its due time:
-- paused | slow start | limited | ''
local function new_places(limits, with_records)
  local live = redis.call('ZCOUNT', leases, '(' .. now, '+inf')
  local stored = redis.call('HMGET', gate, 'until', 'probe', 'full_at', 'slow')
  local paused_until, slow = pause_end(stored[1]), number(stored[4])
  local is_probing = paused_until and stored[2] and tonumber(redis.call('ZSCORE', leases, stored[2]) or 0) > now
  local saved = limits.attempt_ms > 0 and saved_up(limits, number(stored[3])) or math.huge
  local parallel = limits.parallel > 0 and limits.parallel - live or math.huge
  local slots, job_ms = math.huge, 0
  if limits.open_jobs > 0 then
    slots = limits.open_jobs - redis.call('SCARD', jobs)
    job_ms = live == 0 and (first_with_job() or now) - now or 0 -- while nobody asks after a job, none ends
  end
  local at_full_speed = math.min(saved, parallel, slots) == math.huge and not paused_until and not slow

  -- How many of the task's group go before it: all, and of those without an open job.
  local function ahead(name, due, has_job)
    local group = group_name(redis.call('HGET', groups, name))
    local function before(lane)
      return redis.call('ZLEXCOUNT', lane.lines, '[' .. group .. '\0', '(' .. entry(group, due, name))
    end
    local fresh = has_job and 0 or before(FRESH)
    return fresh + before(WITH_JOB), fresh
  end

  -- When an attempt may begin of a task that is due then and came back so often.
  local function may_begin(name, due, back)
    local wait_ms, why = math.max(0, math.ceil(due - now)), ''
    if at_full_speed then return wait_ms, why end
    local function later(ms, reason)
      if ms > wait_ms then wait_ms, why = ms, reason end
    end
    local has_job = limits.open_jobs == 0 or redis.call('SISMEMBER', jobs, name) == 1
    local all, fresh = 0, 0 -- who came back goes without a turn
    if back == '0' then all, fresh = ahead(name, due, limits.open_jobs > 0 and has_job) end
    local again_ms = due <= now and AGAIN_MS or 0
    if paused_until then
      later(math.ceil(paused_until - now), 'paused')
      if is_probing or all > 0 then later(again_ms, 'paused') end
    elseif slow and math.floor(slow) - live <= all then
      later(again_ms, 'slow start')
    end
    if saved < all + 1 then later(math.ceil((all + 1 - saved) * limits.attempt_ms), 'limited') end
    if parallel <= all then later(again_ms, 'limited') end
    if not has_job and slots <= fresh then later(math.max(again_ms, math.ceil(job_ms)), 'limited') end
    return math.min(wait_ms, HORIZON - now), why
  end

  return function(name)
    local due, lease, buried = redis.call('ZSCORE', queue, name), nil, redis.call('ZSCORE', dead, name)
    local generation, _, _, back = parse(redis.call('HGET', state, name))
    local waits_since = due and math.max(0, math.min(due, HORIZON))
    if waits_since == 0 then
      due, lease = false, tonumber(redis.call('ZSCORE', leases, name) or '')
      waits_since = lease and lease <= now and lease
      back = waits_since and '1' or back
    end
    local wait_ms, why = false, ''
    if waits_since then wait_ms, why = may_begin(name, waits_since, back) end
    return {
      generation, due and waits_since - now or false, lease and lease - now or false, buried and now - buried or false,
      with_records and redis.call('HGET', tasks, name), wait_ms, why,
    }
  end
end

-- Replies about these names, each with where the task stands now.
local function with_places(replies, names, limits)
  local place, both = new_places(limits, false), {}
  for i, name in ipairs(names) do both[i] = { replies[i], place(name) } end
  return both
end
