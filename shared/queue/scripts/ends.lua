-- ends: how tasks leave the queue.

local ENDS = { b = 'buried', f = 'forgotten' } -- what `end` has marked a task in process with

-- Leave nothing of tasks that do not stand in line; how many traces there were.
local function drop(names)
  if #names == 0 then return 0 end
  return call('ZREM', leases, names) + call('ZREM', queue, names) + call('ZREM', dead, names)
    + call('HDEL', state, names) + call('HDEL', tasks, names) + call('SREM', jobs, names) + call('HDEL', groups, names)
end

-- Make dead letters of tasks, as `drop` has left nothing of them: name, generation and turn of each.
local function bury(letters)
  local listed, states = {}, {}
  for i, letter in ipairs(letters) do
    listed[2 * i - 1], listed[2 * i] = now, letter.name
    states[2 * i - 1], states[2 * i] = letter.name, state_of(letter.generation, '', letter.turn, '0')
  end
  call('ZADD', dead, listed)
  call('HSET', state, states)
end
