--@include board
-- The `rules` of a ranking. A ranking is a table of its store keys (`key`, `reached`, `levels`, `metadata`) and of the
-- `suffix` of the fields that hold its total. It has a record for each member with a score.
-- Where ties go by time, the name of a record is a tag of 14 bytes and the member. The tag tells when the member reached
-- its score: the time of an event (ms), the offset of its batch, and its number in the batch.
local EXACT = 9007199254740991
-- Whether a sum of zero is no score. Otherwise a member has a score as long as a slot holds it.
local zero_is_none = rules.operation == 'incr' and not rules.zeros

-- Returns the names and the scores of members. A name is '' and a score is nil if the member has none.
local function look_up(ranking, members)
  local names, count = members, #members
  if rules.ties then
    names = call('HMGET', ranking.reached, unpack(members))
    for i = 1, count do names[i] = names[i] and names[i] .. members[i] or '' end
  end
  local scores = call('ZMSCORE', ranking.key, unpack(names))
  for i = 1, count do scores[i] = scores[i] and scores[i] + 0 or nil end  -- faster than `tonumber`
  return names, scores
end

-- Which members are hidden: counted, but without a record.
local function hidden_of(members)
  return call('EXISTS', hidden) == 1 and call('HMGET', hidden, unpack(members)) or {}
end

-- Where ties go by name, the name of a record is the member itself.
local function put_named(ranking, members, old, new)
  local ranked, r, dropped = {}, 0, nil
  for i = 1, #members do
    local score = new[i]
    if score == nil then
      if old[i] then
        dropped = dropped or {}
        dropped[#dropped + 1] = members[i]
      end
    elseif score and score ~= old[i] then
      ranked[r + 1], ranked[r + 2] = score, members[i]
      r = r + 2
    end
  end
  if r > 0 then call('ZADD', ranking.key, unpack(ranked)) end
  if dropped then call('ZREM', ranking.key, unpack(dropped)) end
end

-- Tags that the journal can't compute from events, if `rules.told`: the member, and the time and the number of its tag, or
-- the number 0 if it has lost its tag.
local granted = {}
-- A member that loses its record loses its tag. The journal need not be told if the tag is before this time (ms): it
-- knows that later events have a later time.
local told_from = -math.huge
local tag, moves, arrival, put_tagged
if rules.ties then
  local lost = {}  -- the members that `granted` has with the number 0

  -- The time is counted from 2^46 ms before 1970, so that no time is negative.
  function tag(time, offset, event)
    if rules.ties == 'falling' then
      return struct.pack('>I6I5I3', 211106232532991 - time, 1099511627775 - offset, 16777215 - event)
    end
    return struct.pack('>I6I5I3', 70368744177664 + time, offset, event)
  end

  local function time_of(name)
    local time = struct.unpack('>I6', name)
    return rules.ties == 'falling' and 211106232532991 - time or time - 70368744177664
  end

  -- The time (ms) of what has no time of its own.
  function arrival(board)
    return board.latest or now
  end

  -- Whether a member with a tag gets the tag of an event. `event` is the number of the event with which the batch moved
  -- the member to its amount: negative if the member may have had another score in between, 0 for none. A member
  -- reaches a sum with its latest event, and a best score with the earliest event that has this amount.
  function moves(name, event, time, is_changed)
    if event == 0 then return false end
    if rules.operation == 'incr' then return time >= time_of(name) end
    return event < 0 or is_changed or rules.operation ~= 'set' and time < time_of(name)
  end

  -- `marks` has, for each member, the number of an event (`orders`, see `moves`), and maybe its time (`times`). Without
  -- `marks`, a record keeps its tag. With `keeps_tags`, a member that loses its record keeps its tag too.
  function put_tagged(ranking, board, members, names, old, new, marks, keeps_tags)
    local ranked, dropped, tags, untagged = {}, {}, {}, {}
    local events, times, at = marks and marks.orders, marks and marks.times, arrival(board)
    for i = 1, #members do
      local score, before, name, event = new[i], old[i], names[i], events and events[i]
      local time = times and times[i] or at
      if score == nil then
        dropped[#dropped + 1], untagged[#untagged + 1] = name, members[i]
        local is_told = rules.told and not keeps_tags
        if is_told and (event and event ~= 0 or name ~= '' and time_of(name) >= told_from) then
          granted[#granted + 1] = {members[i], 0, 0}
          lost[members[i]] = true
        end
      elseif score and (name == '' or event and moves(name, event, time, score ~= before)) then
        local number = event and math.abs(event) or i
        local mark = tag(time, board.offset, number)
        local named = mark .. members[i]
        -- A batch with several slots may have given the member this tag a moment ago.
        if before and name ~= named then dropped[#dropped + 1] = name end
        if rules.told and not event or lost[members[i]] then granted[#granted + 1] = {members[i], time, number} end
        tags[#tags + 1], tags[#tags + 2] = members[i], mark
        ranked[#ranked + 1], ranked[#ranked + 2] = score, named
      elseif score and score ~= before then
        ranked[#ranked + 1], ranked[#ranked + 2] = score, name
      end
    end
    if #ranked > 0 then call('ZADD', ranking.key, unpack(ranked)) end
    if #dropped > 0 then call('ZREM', ranking.key, unpack(dropped)) end
    if #tags > 0 then call('HSET', ranking.reached, unpack(tags)) end
    if #untagged > 0 and not keeps_tags then call('HDEL', ranking.reached, unpack(untagged)) end
  end
end

local put_total
if rules.summed then
  -- The total is a whole number of any size, in two fields of the board's state. `total` stays far within 64 bits, and
  -- `high` counts the rest in units of 2^40. So no increment can fail.
  local function grow(ranking, change)  -- `change` is within ±2^53
    if change == 0 then return end
    local sum = call('HINCRBY', meta, 'total' .. ranking.suffix, digits(change))
    if sum > 1152921504606846976 or sum < -1152921504606846976 then
      local units = math.floor(sum / 1099511627776)
      call('HINCRBY', meta, 'total' .. ranking.suffix, digits(-1099511627776 * units))
      call('HINCRBY', meta, 'high' .. ranking.suffix, digits(units))
    end
  end

  function put_total(ranking, members, old, new)
    local gained = 0
    for i = 1, #members do
      local score, before = new[i] or 0, old[i] or 0
      if new[i] ~= false and score ~= before then
        local change = score - before
        if change > EXACT or change < -EXACT then  -- two increments, each of which is exact
          grow(ranking, -before)
          change = score
        end
        local grown = gained + change
        if grown > EXACT or grown < -EXACT then
          grow(ranking, gained)
          grown = change
        end
        gained = grown
      end
    end
    grow(ranking, gained)  -- what was not added yet
  end
end

local put_levels
if rules.dense then
  -- Keeps the set of all scores in the ranking, which had `size` records before.
  function put_levels(ranking, size, members, old, new)
    local left, unused = {}, {}
    for i = 1, #members do
      local score, before = new[i], old[i]
      if score ~= false and score ~= before then
        if before then left[#left + 1] = digits(before) else size = size + 1 end
        if score then call('ZADD', ranking.levels, score, digits(score)) else size = size - 1 end
      end
    end
    for i = 1, #left do
      if size == 0 or call('ZCOUNT', ranking.key, left[i], left[i]) == 0 then unused[#unused + 1] = left[i] end
    end
    if #unused > 0 then call('ZREM', ranking.levels, unpack(unused)) end
  end
end

-- Gives distinct members the scores `new`, where nil is no record and false no change. `names` and `old` are from
-- `look_up`; `marks` and `keeps_tags` only matter where ties go by time.
--
-- While a Cluster moves the hash slot of the board, the store refuses commands on store keys that are gone, even in a
-- script that has written already. So this function must not use a store key that it may have emptied. Therefore it adds
-- first, and removes afterwards.
local function put(ranking, board, members, names, old, new, marks, keeps_tags)
  local size = put_levels and call('ZCARD', ranking.key)
  if put_tagged then
    put_tagged(ranking, board, members, names, old, new, marks, keeps_tags)
  else
    put_named(ranking, members, old, new)
  end
  if put_total then put_total(ranking, members, old, new) end
  if put_levels then put_levels(ranking, size, members, old, new) end
end

local trim
if rules.cap then
  -- Deletes the last records of a ranking that is over its limit, with everything that belongs to them.
  function trim(ranking, board, slot)
    local excess = call('ZCARD', ranking.key) - rules.cap
    while excess > 0 do
      local last = rules.order == 'forward' and 'ZREVRANGE' or 'ZRANGE'
      local score = call(last, ranking.key, 0, 0, 'WITHSCORES')[2]
      local range = rules.order == 'backward' and 'ZRANGEBYSCORE' or 'ZREVRANGEBYSCORE'
      local names = call(range, ranking.key, score, score, 'LIMIT', 0, math.min(excess, 1000))
      local members, old = names, {}
      if rules.ties then
        members = {}
        for i = 1, #names do members[i] = string.sub(names[i], 15) end
      end
      for i = 1, #names do old[i] = tonumber(score) end
      call('HDEL', slot, unpack(members))
      call('HDEL', ranking.metadata, unpack(members))
      put(ranking, board, members, names, old, {})
      excess = excess - #names
    end
  end
end
