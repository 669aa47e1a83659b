-- mend: go through one key, a step at a time, and put right what a server or another release left.
--
-- Promise   Tasks of the main set that stand in no line are put there; a due time that is none, or over a year away,
--           becomes now. What stands in a line though the main set does not say so is removed, and with it a group's turn
--           where the group has nothing; so is what is left beside a dead letter. Names that are neither in the main set
--           nor dead are told, and dead ones without a state: the caller asks their items what becomes of them.
--           A key of another type is removed: nothing could be done with it, and the items tell what was there.
-- ARGV      1 which of KEYS to go through  2 where to go on, 0 first  3.. the type of each of KEYS
-- Returns   where to go on (0: that was all), those names of this key, the keys that were removed
local key, STEP, removed = KEYS[tonumber(ARGV[1])], 200, {}
for i, name in ipairs(KEYS) do
  local kind = redis.call('TYPE', name).ok
  if kind ~= 'none' and kind ~= (ARGV[2 + i] or kind) then
    redis.call('DEL', name)
    removed[#removed + 1] = name
  end
end
local KINDS = { hash = { 'HSCAN', 'HDEL' }, zset = { 'ZSCAN', 'ZREM' }, set = { 'SSCAN', 'SREM' } }
local scan, remove = unpack(KINDS[redis.call('TYPE', key).ok] or {})
if not scan then return { '0', {}, removed } end
local found = redis.call(scan, key, ARGV[2], 'COUNT', STEP)
local entries, width, strays = found[2], scan == 'SSCAN' and 1 or 2, {}

local function members()
  local list = {}
  for i = 1, #entries, width do list[#list + 1] = entries[i] end
  return list
end

-- Keep of a place what stands there by right.
local function tidy(place, names)
  local dues, by_right, wrong, scores = call('ZMSCORE', queue, names), {}, {}, {}
  local whose, has_job = call('HMGET', groups, names), call('SMISMEMBER', jobs, names)
  for i, text in ipairs(call('HMGET', state, names)) do
    local _, _, _, back = parse(text)
    local due = tonumber(dues[i] or 0)
    if due > 0 and place_of(back, has_job[i]) == place then
      local member, at = names[i], #scores + 1
      if place.ring then member = entry(group_name(whose[i]), due, names[i]) end
      by_right[member] = true
      scores[at], scores[at + 1] = place.ring and 0 or due + JOB * has_job[i], member
    end
  end
  for _, member in ipairs(members()) do
    if not by_right[member] then wrong[#wrong + 1] = member end
  end
  wrong[#wrong + 1] = '' -- a removal first, so that a server at maxmemory still mends
  call('ZREM', place.lines or place, wrong)
  call('ZADD', place.lines or place, scores)
end

if key == queue then
  for _, of in ipairs({ runs, plans }) do redis.call('ZREMRANGEBYSCORE', of, '-inf', now) end -- nobody's any more
  for i = 2, #entries, 2 do
    local due = tonumber(entries[i])
    if (due < 0 or due > HORIZON) and not redis.call('ZSCORE', leases, entries[i - 1]) then
      entries[i] = now
      redis.call('ZADD', queue, now, entries[i - 1])
    end
  end
  catch_up(entries)
elseif key == once or key == often then
  tidy(key, members())
elseif key == lines or key == job_lines then
  local names = members()
  for i, member in ipairs(names) do names[i] = member:match('^%Z*%z%d+%z(.*)$') or '' end
  tidy(key == lines and FRESH or WITH_JOB, names)
elseif key == ring or key == job_ring then
  local lane, empty = key == ring and FRESH or WITH_JOB, {}
  for _, group in ipairs(members()) do
    if #line_of(lane, group, 0, 1) == 0 then empty[#empty + 1] = group end
  end
  call('ZREM', lane.ring, empty)
elseif key == dead then
  local names = members()
  for i, text in ipairs(call('HMGET', state, names)) do
    if not text then strays[#strays + 1] = names[i] end
  end
else
  local beside = {} -- of a dead letter nothing but its state is left
  for _, name in ipairs(members()) do
    if not redis.call('ZSCORE', queue, name) then
      local is_dead = redis.call('ZSCORE', dead, name)
      local list = is_dead and beside or strays
      if not (is_dead and key == state) then list[#list + 1] = name end
    end
  end
  call(remove, key, beside)
end
return { found[1], strays, removed }
