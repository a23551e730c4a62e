-- What one hub looks like. KEYS[1] is the prefix. ARGV: hub, as of (ms), now (ms), cells of the strip, share of silent
-- devices that makes the hub silent (percent).
-- Returns counts and instants as strings, then device, due and live of each cell.
local p, hub, asOf, now, cells = KEYS[1], ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local due, up = p .. 'due:' .. hub, p .. 'up:' .. hub
local devices = redis.call('ZCARD', due)
local never = redis.call('ZCOUNT', due, 0, 0)
local overdue = redis.call('ZCOUNT', due, '(0', asOf)
local unknown = 0
if tonumber(now) > tonumber(asOf) then unknown = redis.call('ZCOUNT', due, '(' .. asOf, now) end
local connected = redis.call('ZCOUNT', up, '(0', asOf)

-- The k-th smallest due instant is the moment at which k devices had become silent.
local function dueAt(rank)
  local got = redis.call('ZRANGE', due, rank, rank, 'WITHSCORES')
  return got[2] or '0'
end
local firstSilent, hubSilent = '0', '0'
if overdue > 0 then firstSilent = dueAt(never) end
local needed = math.max(1, math.ceil(devices * tonumber(ARGV[5]) / 100))
if overdue + never >= needed and overdue > 0 then hubSilent = dueAt(math.max(never, needed - 1)) end

local clocks = redis.call('ZCARD', p .. 'clock:' .. hub)
local firstClock = redis.call('ZRANGE', p .. 'clock:' .. hub, 0, 0, 'WITHSCORES')[2] or '0'
local t = redis.call('HMGET', p .. 'hub:' .. hub, 'missed', 'late', 'duplicate', 'quarantined', 'lost', 'events')
local out = {tostring(devices), tostring(never), tostring(overdue - connected), tostring(connected), tostring(unknown),
  firstSilent, hubSilent, tostring(clocks), firstClock,
  t[1] or '0', t[2] or '0', t[3] or '0', t[4] or '0', t[5] or '0', t[6] or '0'}

cells = math.min(cells, devices)
for c = 0, cells - 1 do
  local rank = math.floor(c * devices / cells) -- the most urgent of its share: a few silent devices must not hide
  local got = redis.call('ZRANGE', due, rank, rank, 'WITHSCORES')
  out[#out + 1] = got[1]
  out[#out + 1] = got[2]
  out[#out + 1] = redis.call('HGET', p .. 'd:' .. got[1], 'live') or '0'
end
return out
