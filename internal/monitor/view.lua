-- Gates and applies one batch of one partition, everything or nothing. KEYS[1] is the prefix of every key.
-- ARGV: partition, next offset, confirmed offset (-1: none), token of this call, now in ms, then nine per event:
-- device, hub, stream, position, predecessor, numbers, skips, instants, value.
--   position    epoch.sequence, 19 digits each: text order is their order (a Lua number would round above 2^53)
--   predecessor the position that would leave no hole; '' when holes say nothing (a compacted stretch)
--   numbers     live:expect:link:suspect:behind:missed:late:duplicate:quarantined:notes
--   skips       from-to,from-to: what the relay left out on purpose
-- Returns status (done, behind), the stored offset, and what the gate saw before each event, 39 characters each.
local NONE = '0000000000000000000.0000000000000000000'
local p, partition, offset, now = KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[5]
local call, tonumber, sub, fmt = redis.call, tonumber, string.sub, string.format

local stored = call('HGET', p .. 'pos', partition)
local confirmed = tonumber(ARGV[3])
if confirmed >= 0 and (not stored or tonumber(stored) < confirmed) then
  return {'behind', stored or '-1', ''}
end
-- Perhaps this very call, sent again because its answer was lost: the verdicts of the first time are the true ones.
local last = call('HGET', p .. 'ans', partition)
if last and sub(last, 1, #ARGV[4]) == ARGV[4] then
  return {'done', stored, sub(last, #ARGV[4] + 1)}
end

local PATTERN = '^(%d+):(%d+):(%a*):(%d):(%d+):(%d+):(%d+):(%d+):(%d+):(.*)$'
local BEHIND_MS = 60000 -- live reports behind for so long are no backlog: the device's clock is slow
local TOTALS = {'missed', 'late', 'duplicate', 'quarantined'}
local hubs, answer = {}, {}

local function text(n) return fmt('%.0f', n) end

local function leave(device, hub)
  for _, set in ipairs({'due:', 'up:', 'clock:', 'gaps:'}) do
    call('ZREM', p .. set .. hub, device)
  end
  call('HINCRBY', p .. 'hub:' .. hub, 'devices', -1)
end

-- The due instants of a device's streams are kept as "stream=ms;stream=ms;".
local function earliest(dues, stream, due)
  local first, out = due, {}
  for name, at in string.gmatch(dues, '([^=;]+)=(%d+)') do
    if name ~= stream then
      out[#out + 1] = name .. '=' .. at .. ';'
      at = tonumber(at)
      if first == 0 or at < first then first = at end
    end
  end
  if due > 0 then out[#out + 1] = stream .. '=' .. text(due) .. ';' end
  return first, table.concat(out)
end

-- The streams whose clock is suspect are kept as "stream;stream;".
local function mark(suspects, stream, suspect)
  local out = {}
  for name in string.gmatch(suspects, '([^;]+)') do
    if name ~= stream then out[#out + 1] = name .. ';' end
  end
  if suspect then out[#out + 1] = stream .. ';' end
  return table.concat(out)
end

-- What is missing between two positions of one epoch and no skip explains.
local function unexplained(seen, position, skips)
  local at, stop = tonumber(sub(seen, 21)) + 1, tonumber(sub(position, 21)) - 1
  local lost = {}
  for from, to in string.gmatch(skips, '(%d+)-(%d+)') do
    from, to = tonumber(from), tonumber(to)
    if to >= at and from <= stop then
      if from > at then lost[#lost + 1] = {at, from - 1} end
      at = to + 1
    end
  end
  if at <= stop then lost[#lost + 1] = {at, stop} end
  return lost
end

local function note(notes, what)
  if notes == '' then return what end
  return notes .. ',' .. what
end

local function apply(i, seen, old)
  local device, hub, stream, position, numbers = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 5]
  local live, expect, link, suspect, behind, n1, n2, n3, n4, notes = string.match(numbers, PATTERN)
  local h = p .. 'hub:' .. hub
  local suspects = old[5] or ''
  if old[2] ~= hub then
    if old[2] then
      leave(device, old[2])
      if suspects ~= '' then call('ZADD', p .. 'clock:' .. hub, now, device) end
    else
      call('ZADD', p .. 'names', 0, device)
    end
    call('HINCRBY', h, 'devices', 1)
  end

  local known, since, before = 0, 0, {0, 0, 0, 0}
  if old[1] then
    local l, _, _, _, b, o1, o2, o3, o4 = string.match(sub(old[1], 41), PATTERN)
    known, since, before = tonumber(l), tonumber(b), {tonumber(o1), tonumber(o2), tonumber(o3), tonumber(o4)}
  end
  local heard, quiet, due = math.max(tonumber(live), known), tonumber(expect), 0
  if quiet > 0 and heard > 0 then due = heard + quiet end
  local first, dues = earliest(old[3] or '', stream, due)
  local device_live = tonumber(old[6] or '0')
  if due > 0 then device_live = math.max(device_live, heard) end

  if behind == '0' then
    since = 0
  elseif since == 0 then
    since = heard
  elseif heard - since >= BEHIND_MS then
    suspect = '1'
  end
  local was = old[4] or ''
  if link == '' then
    link = was
  elseif was ~= '' and link ~= was then
    notes = note(notes, link == 'up' and 'connected' or 'disconnected')
  end
  local marked = string.find(';' .. suspects, ';' .. stream .. ';', 1, true) ~= nil
  if (suspect == '1') ~= marked then
    local had = suspects
    suspects = mark(suspects, stream, suspect == '1')
    notes = note(notes, suspect == '1' and 'clock_suspect' or 'clock_right')
    if suspects == '' then
      call('ZREM', p .. 'clock:' .. hub, device)
    elseif had == '' then
      call('ZADD', p .. 'clock:' .. hub, now, device)
    end
  end

  local after = {tonumber(n1), tonumber(n2), tonumber(n3), tonumber(n4)}
  for k, name in ipairs(TOTALS) do
    local more = after[k] - before[k]
    if more ~= 0 then
      call('HINCRBY', h, name, text(more))
      if k == 1 then call('ZINCRBY', p .. 'gaps:' .. hub, more, device) end
      if more > 0 and name ~= 'duplicate' then notes = note(notes, name .. ' ' .. text(more)) end -- a copy is nothing unusual
    end
  end

  if seen ~= NONE and ARGV[i + 4] ~= '' and seen ~= ARGV[i + 4] and sub(seen, 1, 19) == sub(position, 1, 19) then
    for _, range in ipairs(unexplained(seen, position, ARGV[i + 6])) do
      local span = text(range[1]) .. '-' .. text(range[2])
      local member = table.concat({hub, device, stream, text(tonumber(sub(position, 1, 19))), span}, '|')
      if call('ZADD', p .. 'loss', 'NX', now, member) == 1 then
        call('HINCRBY', h, 'lost', text(range[2] - range[1] + 1))
      end
      call('ZREMRANGEBYRANK', p .. 'loss', 0, -10001)
      notes = note(notes, 'lost ' .. span)
    end
  end
  if seen ~= NONE and sub(seen, 1, 19) ~= sub(position, 1, 19) then notes = note(notes, 'new epoch') end

  call('ZADD', p .. 'due:' .. hub, first, device)
  if link == 'up' then
    call('ZADD', p .. 'up:' .. hub, first, device)
  elseif was == 'up' then
    call('ZREM', p .. 'up:' .. hub, device)
  end
  local kept = table.concat({text(heard), expect, link, suspect, text(since), n1, n2, n3, n4, ''}, ':')
  call('HSET', p .. 'd:' .. device, 'hub', hub, 'dues', dues, 'link', link, 'suspects', suspects, 'live', text(device_live),
    'p:' .. stream, position .. ':' .. kept, 't:' .. stream, ARGV[i + 7], 'v:' .. stream, ARGV[i + 8])
  if notes ~= '' then
    call('RPUSH', p .. 't:' .. device, table.concat({now, text(heard), stream, position, notes}, '|'))
    call('LTRIM', p .. 't:' .. device, -50, -1)
  end
  local sum = hubs[hub] or {0, 0}
  hubs[hub] = {sum[1] + 1, math.max(sum[2], heard)}
end

for i = 6, #ARGV, 9 do
  local old = call('HMGET', p .. 'd:' .. ARGV[i], 'p:' .. ARGV[i + 2], 'hub', 'dues', 'link', 'suspects', 'live')
  local seen = old[1] and sub(old[1], 1, 39) or NONE
  answer[#answer + 1] = seen
  if ARGV[i + 3] > seen then apply(i, seen, old) end
end

for hub, sum in pairs(hubs) do
  call('HINCRBY', p .. 'hub:' .. hub, 'events', sum[1])
  call('ZADD', p .. 'hubs', 'GT', text(sum[2]), hub)
end
answer = table.concat(answer)
if not stored or offset > tonumber(stored) then stored = ARGV[2] end
call('HSET', p .. 'pos', partition, stored)
call('HSET', p .. 'ans', partition, ARGV[4] .. answer)
return {'done', stored, answer}
