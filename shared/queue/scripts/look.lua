-- look: where tasks stand; changes nothing.
--
-- ARGV      1 '1': with records  2 parallel  3 open jobs  4 ms per attempt  5 burst (0: no limit)  6 unused; for each task: name
-- Returns   for each task: generation ('0' if unknown), then ms until it is due (0 or less: now), ms until its lease
--           ends, ms since it was buried, its record, of one that waits the ms until the gate may let it through: each
--           nil where it does not apply; last what holds it up longer than its due time: paused | limited | ''
local with_records, limits = ARGV[1] == '1', limits_at(2)
local live = redis.call('ZCOUNT', leases, '(' .. now, '+inf')
local allowed, gate_ms = allowance(limits, live, 1)
local is_paused = allowed == 0 and pause_end(redis.call('HGET', gate, 'until'))
local is_full = limits.open_jobs > 0 and redis.call('SCARD', jobs) >= limits.open_jobs

-- when a job may end: while nobody asks after one, none does
local function place_ms()
  local next_due = live == 0 and redis.call('ZRANGEBYSCORE', queue, '(' .. now, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
  return next_due and math.ceil(next_due - now) or AGAIN_MS
end

-- how long the gate holds up a task that is due in so many ms, and why
local function held_up(name, due_ms)
  if is_paused and gate_ms > due_ms then return gate_ms, 'paused' end
  if due_ms > 0 or is_paused then return math.max(0, due_ms), '' end
  if allowed == 0 then return gate_ms, 'limited' end
  if is_full and redis.call('SISMEMBER', jobs, name) == 0 then return place_ms(), 'limited' end
  return 0, ''
end

local replies = {}
for i, name in ipairs(rows(7, { 'name' }).name) do
  local due, lease, buried = redis.call('ZSCORE', queue, name), nil, redis.call('ZSCORE', dead, name)
  due = due and math.max(0, math.min(due, HORIZON))
  if due == 0 then
    due, lease = false, redis.call('ZSCORE', leases, name)
  end
  local wait_ms, why = false, ''
  if due then wait_ms, why = held_up(name, due - now) end
  replies[i] = {
    (parse(redis.call('HGET', state, name))), due and due - now or false, lease and lease - now or false,
    buried and now - buried or false, with_records and redis.call('HGET', tasks, name), wait_ms, why,
  }
end
return replies
