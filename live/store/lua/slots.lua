#!lua flags=no-writes
-- Adds up what members hold in groups of slots, and reads the board's position, at one instant.
-- KEYS[1] meta — hash: the board's state
-- KEYS[2] hidden — hash: the members that are hidden
-- KEYS[3...] slot — hash: member, value; one for each slot, group after group
-- Request: SlotsRequest
-- Returns {epoch, offset, {hidden, ...}, {{value, ...}, ...}} — for each member a text if it is hidden, then for each
--         group the sums of the members, nil for a member without events there; epoch is '' for no board
--         {'replan', newest, now, latest} — the caller is wrong about the board's clock
--         {'reign', offset, link, epoch, resending} — nobody has checked the board after a failover; see `lib/reign`
local request = cmsgpack.unpack(ARGV[1])
local reign = ARGV[2] or ''
local meta, hidden = KEYS[1], KEYS[2]
--@include reign
--@include clock
local members = request.members
local state = redis.call('HMGET', meta, 'epoch', 'offset', 'newest', 'latest', 'reign')
local newest, refused = tonumber(state[3]), unchecked(state[5])
if refused then return refused end
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
return {state[1] and shown(state[1], state[5]) or '', state[2] or '0', redis.call('HMGET', hidden, unpack(members)), values}
