-- Gate and write one batch of one partition. Everything or nothing: a script runs alone, and a first write that is
-- refused for want of memory ends it before anything has changed.
--
-- A position is "epoch.sequence", 19 digits each, so that text order is their order (a Lua number would round above 2^53).
-- KEYS: 1 the hash of positions and offsets, 2 the list of holes, 3… the keys of the effect groups
-- ARGV: offset field, field of the last answer, token, confirmed, next, hole limit,
--       streams n, their n fields, groups g, g × (command, 1 if variadic),
--       events m, m × (stream, position, its predecessor, hole record, count of effect args c, c × effect arg)
--       where effect args are a run of (group, count, args…)
local NONE = '0000000000000000000.0000000000000000000'
local CHUNK = 4000 -- unpack puts its values on the C stack; even, so that pairs stay together
local positions = KEYS[1]
local call, unpack, tonumber, sub = redis.call, unpack, tonumber, string.sub

local stored = call('HGET', positions, ARGV[1])
local confirmed, next = tonumber(ARGV[4]), tonumber(ARGV[5])
if confirmed >= 0 and (not stored or tonumber(stored) < confirmed) then
  return {'behind', stored or '-1', ''}
end
if stored and tonumber(stored) == next then
  -- Perhaps this very batch, sent again because its answer was lost: the verdicts of the first time are the true ones.
  local last = call('HGET', positions, ARGV[2])
  if last and sub(last, 1, #ARGV[3]) == ARGV[3] then
    return {'done', stored, sub(last, #ARGV[3] + 1)}
  end
end

local function each(list, n, command, key)
  for from = 1, n, CHUNK do
    call(command, key, unpack(list, from, math.min(from + CHUNK - 1, n)))
  end
end

local at = 7
local n = tonumber(ARGV[at])
local old, current = {}, {}
for from = 1, n, CHUNK do
  local part = call('HMGET', positions, unpack(ARGV, at + from, at + math.min(from + CHUNK - 1, n)))
  for i = 1, #part do
    local p = part[i] or NONE
    old[from + i - 1], current[from + i - 1] = p, p
  end
end
local fields = at
at = at + n + 1

local groups = tonumber(ARGV[at])
local commands = at
local pending, filled = {}, {}
at = at + 2 * groups + 1

local limit, holes = tonumber(ARGV[6]), {}
local events = tonumber(ARGV[at])
at = at + 1
for _ = 1, events do
  local stream, position = tonumber(ARGV[at]), ARGV[at + 1]
  local seen = current[stream]
  local stop = at + 5 + tonumber(ARGV[at + 4])
  if position > seen then
    current[stream] = position
    if seen ~= NONE and seen ~= ARGV[at + 2] and sub(seen, 1, 19) == sub(position, 1, 19) then
      holes[#holes + 1] = seen .. ARGV[at + 3]
    end
    at = at + 5
    while at < stop do
      local g, count = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
      local list, size = pending[g], filled[g]
      if not list then
        list, size = {}, 0
        pending[g] = list
      end
      for i = 1, count do
        list[size + i] = ARGV[at + 1 + i]
      end
      filled[g] = size + count
      at = at + 2 + count
    end
  end
  at = stop
end

for g = 1, groups do
  local list = pending[g]
  if list then
    local command, key = ARGV[commands + 2 * g - 1], KEYS[g + 2]
    if ARGV[commands + 2 * g] == '1' then
      each(list, filled[g], command, key)
    else
      call(command, key, unpack(list, 1, filled[g]))
    end
  end
end
if limit > 0 and #holes > 0 then
  each(holes, #holes, 'LPUSH', KEYS[2])
  call('LTRIM', KEYS[2], 0, limit - 1)
end

local moved, size = {}, 0
for i = 1, n do
  if current[i] ~= old[i] then
    moved[size + 1], moved[size + 2] = ARGV[fields + i], current[i]
    size = size + 2
  end
end
if stored and tonumber(stored) > next then
  next = stored
else
  next = ARGV[5]
end
local before = table.concat(old)
moved[size + 1], moved[size + 2] = ARGV[1], next
moved[size + 3], moved[size + 4] = ARGV[2], ARGV[3] .. before
each(moved, size + 4, 'HSET', positions)
return {'done', next, before}
