-- Takes the last records out of a ranking that holds more than it may, with all that belongs to them.
local function cut(suffix, slot, ranking, reached, levels, metadata)
  local excess = redis.call('ZCARD', ranking) - cap
  while excess > 0 do
    local score = redis.call(order == 'forward' and 'ZREVRANGE' or 'ZRANGE', ranking, 0, 0, 'WITHSCORES')[2]
    local range = order == 'backward' and 'ZRANGEBYSCORE' or 'ZREVRANGEBYSCORE'
    local names = redis.call(range, ranking, score, score, 'LIMIT', 0, math.min(excess, 1000))
    local members = names
    if ties ~= 'key' then
      members = {}
      for i = 1, #names do members[i] = string.sub(names[i], 9) end
      redis.call('HDEL', reached, unpack(members))
    end
    redis.call('ZREM', ranking, unpack(names))
    redis.call('HDEL', slot, unpack(members))
    redis.call('HDEL', metadata, unpack(members))
    if ranks == 'dense' and redis.call('ZCOUNT', ranking, score, score) == 0 then redis.call('ZREM', levels, score) end
    if summed == '1' then
      for _ = 1, #names do grow(suffix, -tonumber(score)) end
    end
    excess = excess - #names
  end
end
