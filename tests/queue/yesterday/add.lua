-- add: put tasks into the queue, unique by name and generation.
--
-- Promise   nothing there -> created; a lower generation there, in whatever state -> replaced, which fences its
--           worker; the same -> exists, or created again if the token is the caller's own; a higher -> stale.
--           Leased to the caller as far as the gate allows attempts to begin, beyond that it waits, due after its delay;
--           where the provider has limits, only what those that are due already (without a crash) leave of them: nobody
--           who waits at a limit is overtaken. With 200 due nothing is left.
-- ARGV      1 token  2 lease in ms (0: waiting, else processed by the caller at once)
--           3 parallel  4 open jobs  5 ms per attempt  6 burst (0: no limit)
--           then for each task: name, generation, delay in ms, record, group ('': none), '1': its job is open
-- Returns   for each task: created | waiting (created, but not leased as asked) | exists | stale
local token, lease_ms, limits = ARGV[1], tonumber(ARGV[2]), limits_at(3)
local FIRST, WIDTH = 7, 6
local names = column(FIRST, WIDTH)

-- waiting, leased or dead; at 0 without a lease nobody would ever come back to it
local function is_held(name)
  local score = redis.call('ZSCORE', queue, name)
  if score then return tonumber(score) > 0 or redis.call('ZSCORE', leases, name) end
  return redis.call('ZSCORE', dead, name)
end

-- how many wait their turn, and how many of those have no job yet; of too many to count, more than there is to have
local function ahead()
  local MOST, MORE = 200, 2 ^ 31
  local due = redis.call('ZRANGEBYSCORE', queue, 1, now, 'LIMIT', 0, MOST)
  if #due == MOST then return MORE, MORE end
  local attempts, fresh, has_job = 0, 0, call('SMISMEMBER', jobs, due)
  for i, text in ipairs(call('HMGET', state, due)) do
    local _, _, crashes = parse(text)
    if crashes == 0 then attempts, fresh = attempts + 1, fresh + 1 - has_job[i] end
  end
  return attempts, fresh
end

local allowed, pass = 0, {}
if lease_ms > 0 then
  local _, attempts, fresh = nil, 0, 0
  if limits.parallel + limits.open_jobs + limits.attempt_ms > 0 then attempts, fresh = ahead() end
  allowed, _, pass = allowance(limits, redis.call('ZCOUNT', leases, '(' .. now, '+inf'), #names + attempts)
  allowed = allowed - attempts
  if limits.open_jobs > 0 then allowed = math.min(allowed, limits.open_jobs - redis.call('SCARD', jobs) - fresh) end
end

local held, replies, created, begun = {}, {}, {}, {}
for i, text in ipairs(call('HMGET', state, names)) do
  if text and is_held(names[i]) then
    local generation, holder = parse(text)
    local is_leased = redis.call('ZSCORE', leases, names[i])
    held[names[i]] = { generation = tonumber(generation), token = holder, is_leased = is_leased }
  end
end
for i, name in ipairs(names) do
  local at = FIRST + (i - 1) * WIDTH
  local generation, there = tonumber(ARGV[at + 1]), held[name] or { generation = 0 }
  if generation < there.generation then
    replies[i] = 'stale'
  elseif generation == there.generation and there.token ~= token then
    replies[i] = 'exists'
  else
    if generation > there.generation then
      there = { generation = generation, token = token, is_leased = #begun < allowed, at = at }
      held[name] = there
      created[#created + 1] = at
      if there.is_leased then begun[#begun + 1] = name end
    end
    replies[i] = lease_ms > 0 and not there.is_leased and 'waiting' or 'created'
  end
end

local scores, states, records, group_of, lease_ends = {}, {}, {}, {}, {}
local opened, every, waiting, jobless, ungrouped = {}, {}, {}, {}, {}
for _, at in ipairs(created) do
  local name, generation, delay_ms, record = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2]), ARGV[at + 3]
  local group, has_job, is_leased = ARGV[at + 4], ARGV[at + 5] == '1', held[name].is_leased
  if held[name].at == at then -- else a higher generation of it follows in this very call
    every[#every + 1] = name
    scores[#scores + 1], scores[#scores + 2] = is_leased and 0 or now + delay_ms, name
    states[#states + 1], states[#states + 2] = name, generation .. ':' .. token .. ':0'
    records[#records + 1], records[#records + 2] = name, record
    if is_leased then
      lease_ends[#lease_ends + 1], lease_ends[#lease_ends + 2] = now + lease_ms, name
    else
      waiting[#waiting + 1] = name
    end
    local counted = limits.open_jobs > 0 and (is_leased or has_job) and opened or jobless
    counted[#counted + 1] = name
    if group ~= '' then
      group_of[#group_of + 1], group_of[#group_of + 2] = name, group
    else
      ungrouped[#ungrouped + 1] = name
    end
  end
end

call('ZADD', queue, scores) -- first, so that a server at maxmemory takes no new task
call('ZADD', leases, lease_ends)
call('ZREM', leases, waiting)
call('ZREM', dead, every)
call('HSET', state, states)
call('HSET', tasks, records)
call('SADD', jobs, opened)
call('SREM', jobs, jobless)
call('HSET', groups, group_of)
if #ungrouped > 0 then ungroup(ungrouped) end
admit(pass, begun)
return replies
