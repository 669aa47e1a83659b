-- prelude: what every script begins with; Python puts it before each of them.
--
-- KEYS are the same for all: one provider's (`LAYOUT` in queue.py). The server's clock is the only one. A task's state is
-- `generation:token.turn:came back`: the token of who holds it (of one that waits: none, or the first digits of who
-- added it), how often it was claimed (and a letter once `end` has found it in process), how often its lease expired
-- since the last attempt. The release before has no turn: that is read as 0; its scripts read this form.
local queue, leases, state, tasks, dead, gate, jobs, groups = unpack(KEYS, 1, 8)
local lines, ring, job_lines, job_ring, once, often, plans, runs = unpack(KEYS, 9)
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local MOST = 200 -- tasks that a call gives or takes
local HORIZON = now + 366 * 86400000 -- a file's longest span is a year: no task is due later, no pause ends later

-- A call with many arguments of one kind; none for none. Calls come with at most 200 tasks.
local NONE = {}
local function call(verb, key, arguments)
  if #arguments == 0 then return NONE end
  return redis.call(verb, key, unpack(arguments))
end

-- What ARGV says of the tasks in a call, as one list for each field: from `first` on how many tasks there are, a letter for
-- each of these fields (`e`: each task has its own; else it is the same for all and told once), then field by field.
local EACH = string.byte('e')
local function rows(first, fields)
  local found, count, told, at = {}, tonumber(ARGV[first]), ARGV[first + 1], first + 2
  if count == 1 then
    for i, field in ipairs(fields) do found[field] = { ARGV[at + i - 1] } end
    return found
  end
  for letter, field in ipairs(fields) do
    if told:byte(letter) == EACH then
      found[field] = { unpack(ARGV, at, at + count - 1) }
      at = at + count
    else
      local values, value = {}, ARGV[at]
      for i = 1, count do values[i] = value end
      found[field], at = values, at + 1
    end
  end
  return found
end

-- Generation ('0' for none or junk), token, turn, came back, and how a task in process has ended: b, f or ''; all as text,
-- since most go back as they came.
local function parse(text)
  local generation, token, turn, mark, back = string.match(text or '', '^(%d+):([^:.]*)%.?(%d*)(%l?):(%d+)$')
  if not generation then return '0', '', '0', '0', '' end
  return generation, token, turn == '' and '0' or turn, back, mark
end

local function state_of(generation, token, turn, back) return generation .. ':' .. token .. '.' .. turn .. ':' .. back end
