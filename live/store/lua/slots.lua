#!lua flags=no-writes
-- Adds up what members hold in groups of slots, and reads the board's position, at one instant.
-- KEYS meta, hidden
-- KEYS slot... — hash: member, value; one for each slot, group after group
-- Request: SlotsRequest
-- Returns {epoch, offset, {hidden, ...}, {{value, ...}, ...}} — for each member a text if it is hidden, then for each
--         group the sums of the members, nil for a member without events there; epoch is '' for no board
--@include reign
--@include clock
local members = request.members
local state = redis.call('HMGET', meta, 'epoch', 'offset', 'newest', 'latest', 'reign', 'clock', 'edition', 'ruled')
set_clock(state[6])
local newest, refused = tonumber(state[3]), unchecked(state[5])
if refused then return refused end
if state[1] and (request.ruled or false) ~= state[8] then return {'ruled'} end
if state[1] and not fits(request.clock, newest, nil) then return replan(newest, tonumber(state[4])) end

local values, key = {}, 2
for i, size in ipairs(request.sizes) do
  key = key + 1
  local sums = redis.call('HMGET', KEYS[key], unpack(members))
  for _ = 2, size do
    key = key + 1
    for j, value in ipairs(redis.call('HMGET', KEYS[key], unpack(members))) do
      if value then sums[j] = (sums[j] or 0) + value end
    end
  end
  values[i] = sums
end
local epoch = state[1] and shown(state[1], state[5], state[7]) or ''
return {epoch, state[2] or '0', redis.call('HMGET', hidden, unpack(members)), values}
