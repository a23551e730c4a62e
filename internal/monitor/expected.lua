-- Makes devices known that have not reported yet. KEYS[1] is the prefix; ARGV: hub and device in turn.
-- Returns how many were new.
local p, added = KEYS[1], 0
for i = 1, #ARGV, 2 do
  local hub, device = ARGV[i], ARGV[i + 1]
  if redis.call('HSETNX', p .. 'd:' .. device, 'hub', hub) == 1 then
    added = added + 1
    redis.call('ZADD', p .. 'due:' .. hub, 0, device)
    redis.call('ZADD', p .. 'names', 0, device)
    redis.call('HINCRBY', p .. 'hub:' .. hub, 'devices', 1)
    redis.call('ZADD', p .. 'hubs', 'NX', 0, hub)
  end
end
return added
