-- What a group does to its ranking. That of the first group is known before anything is written, so the notice can carry
-- it.
local sign = rules.order == 'forward' and -1 or 1
local threshold

if rules.cap then
  -- The score below which no new member gets into a full ranking of best values, where no record expires. Then
  -- the script need not add most members of a batch only to trim them. Signed so that more is better; nil for no
  -- threshold.
  function threshold(ranking)
    if operation == 'set' or call('ZCARD', ranking.key) < rules.cap then return end
    local last = rules.order == 'forward' and 'ZREVRANGE' or 'ZRANGE'
    return sign * tonumber(call(last, ranking.key, 0, 0, 'WITHSCORES')[2])
  end
end

-- Sets for each member of a group: `names` and `old`, its record so far; `new`, its score, nil for no record and false
-- for no change; `changed`, whether its value changes, where metadata depends on it; and `unseen`, whether it is hidden.
-- Sets what the slot will hold (`held`), and the members that leave it (`emptied`). Returns the group.
local function judge(group)
  local members, amounts, values, ranking = group.members, group.amounts, group.values, group.ranking
  local names, old = look_up(ranking, members)
  local unseen, least = hidden_of(members), threshold and threshold(ranking)
  local new, changed, held, emptied, h = {}, group.metadata and {}, {}, nil, 0
  for j = 1, #members do
    local value, before = values[j], old[j]
    local score = value
    if incr then
      score = (before or 0) + amounts[j]
      if score == 0 then score = nil end
    end
    if least and not before and not unseen[j] and sign * score < least then
      new[j] = false
    else
      if value == 0 and incr then
        emptied = emptied or {}
        emptied[#emptied + 1] = members[j]
      else
        held[h + 1], held[h + 2] = members[j], value
        h = h + 2
      end
      new[j] = score
      local is_changed = score ~= before
      if unseen[j] then new[j], is_changed = false, value ~= group.olds[j] end
      if changed then changed[j] = is_changed end
    end
  end
  group.names, group.old, group.new, group.changed, group.unseen = names, old, new, changed, unseen
  group.held, group.emptied = held, emptied
  return group
end

-- What the notice carries, so that a process that shows the ranking need not read it: suffix of the ranking, by how much
-- the number of records and the total grow, members, scores (false for no record), and for each member the event that
-- its tag names (-1 where it keeps its tag). Nil if the caller wants none, or if there is more to the change.
local function change_of(group)
  if not request.carried then return end
  if group.suffix ~= '' and request.reached ~= group.start then return end  -- an earlier period
  local members, scores, events, count, total = {}, {}, {}, 0, 0
  for i, member in ipairs(group.members) do
    local score, before, event = group.new[i], group.old[i], group.orders and group.orders[i]
    local retagged = is_retagged and is_retagged(group.names[i], before, score, event)
    if score ~= false and (score ~= before or retagged or operation == 'set') then
      local gained = (score or 0) - (before or 0)
      total = total + gained
      if math.abs(gained) > EXACT or math.abs(total) > EXACT then return end
      count = count + (score and 1 or 0) - (before and 1 or 0)
      members[#members + 1], scores[#scores + 1] = member, score or false
      events[#events + 1] = retagged and math.abs(event) or -1
    end
  end
  if rules.cap and call('ZCARD', group.ranking.key) + count > rules.cap then return end  -- the last records leave
  return {group.suffix, count, total, members, scores, events}
end
