-- Compares the ranking with the slots for some members, all at one instant; on demand sets right what differs.
-- KEYS[1] ranking — sorted set: member, score
-- KEYS[2] meta — hash: the board's state
-- KEYS[3] slots — sorted set: start of every slot there is, scored by itself
-- KEYS[4...] slot — hashes of all slots, in the order of their starts
-- ARGV[1] repair — "1" to give the ranking the sum of the slots, "0" to look only
-- ARGV[2] channel — string: where a repair is announced
-- ARGV[3...] rest — the start (seconds) of each slot key, then the members, distinct
-- Returns {'ok', offset, sum, volume, member, score, held, ...}: over these members the sum of the slots' values and of
--         their |values|; then each member whose score differs from what the slots hold ('' for no record)
--         {'slots'} — slots have come or gone: ask again with the keys that there are
local ranking, meta, slots = KEYS[1], KEYS[2], KEYS[3]
local repair, channel = ARGV[1], ARGV[2]
local rest = 3

local function digits(number)
  return string.format('%.0f', number)
end

local starts = redis.call('ZRANGE', slots, 0, -1)
if #starts ~= #KEYS - 3 then return {'slots'} end
for i = 1, #starts do
  if starts[i] ~= ARGV[rest + i - 1] then return {'slots'} end
end

local offset = redis.call('HGET', meta, 'offset') or '0'
local members = {}
for i = rest + #starts, #ARGV do members[#members + 1] = ARGV[i] end
if #members == 0 then return {'ok', offset, '0', '0'} end
local sums, volume = {}, 0
for i = 1, #members do sums[i] = 0 end
for slot = 1, #starts do
  local values = redis.call('HMGET', KEYS[3 + slot], unpack(members))
  for i = 1, #members do
    local value = tonumber(values[i] or 0)
    sums[i], volume = sums[i] + value, volume + math.abs(value)
  end
end

local scores = redis.call('ZMSCORE', ranking, unpack(members))
local sum, drift = 0, {}
for i = 1, #members do
  sum = sum + sums[i]
  local score = scores[i] and tonumber(scores[i])
  if (score or 0) ~= sums[i] or score == 0 then
    drift[#drift + 1] = members[i]
    drift[#drift + 1] = score and digits(score) or ''
    drift[#drift + 1] = digits(sums[i])
    if repair == '1' then
      if sums[i] == 0 then
        redis.call('ZREM', ranking, members[i])
      else
        redis.call('ZADD', ranking, digits(sums[i]), members[i])
      end
    end
  end
end

if repair == '1' and #drift > 0 then
  offset = digits(redis.call('HINCRBY', meta, 'offset', 1))
  redis.call('PUBLISH', channel, redis.call('HGET', meta, 'epoch') .. ':' .. offset)
end
return {'ok', offset, digits(sum), digits(volume), unpack(drift)}
