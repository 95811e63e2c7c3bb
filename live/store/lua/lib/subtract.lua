-- Takes values from the scores of a table's members (distinct), and from the sum of all; hidden ones have none. A score
-- of zero is no record. What was at zero, because its slots made up for each other, becomes one: it reaches its score now.
local function subtract(members, values)
  local unseen = redis.call('EXISTS', hidden) == 1 and redis.call('HMGET', hidden, unpack(members)) or {}
  local names = members
  if ties ~= 'key' then
    names = redis.call('HMGET', reached, unpack(members))
    for i = 1, #members do names[i] = names[i] and names[i] .. members[i] or '' end
  end
  local scores = redis.call('ZMSCORE', ranking, unpack(names))
  local ranked, dropped, untagged, gone, lost = {}, {}, {}, {}, 0
  for i = 1, #members do
    if not unseen[i] then
      local sum = lost + values[i]
      if math.abs(sum) > 9007199254740991 then
        grow('', -lost)
        sum = values[i]
      end
      lost = sum
      local old = tonumber(scores[i] or 0)
      if names[i] == '' and old ~= values[i] then
        local number = tonumber(offset)
        local tag = struct.pack('>I5I3', ties == 'falling' and 1099511627775 - number or number, i)
        redis.call('HSET', reached, members[i], tag)
        names[i] = tag .. members[i]
      end
      local score = old - values[i]
      if score == 0 then
        dropped[#dropped + 1] = names[i]
        untagged[#untagged + 1] = members[i]
      else
        ranked[#ranked + 1] = digits(score)
        ranked[#ranked + 1] = names[i]
        if ranks == 'dense' then redis.call('ZADD', levels, digits(score), digits(score)) end
      end
      gone[#gone + 1] = digits(old)
    end
  end
  grow('', -lost)
  if #ranked > 0 then redis.call('ZADD', ranking, unpack(ranked)) end
  if #dropped > 0 then
    redis.call('ZREM', ranking, unpack(dropped))
    if ties ~= 'key' then redis.call('HDEL', reached, unpack(untagged)) end
  end
  if ranks == 'dense' then
    for i = 1, #gone do
      if redis.call('ZCOUNT', ranking, gone[i], gone[i]) == 0 then redis.call('ZREM', levels, gone[i]) end
    end
  end
end
