--@include fields
-- Step: prepare what to add to the log of a sliding window, from which events expire one by one. If the sum of all
-- absolute amounts of a member is within the range, then the member's value is within the range too, whichever events
-- are left. This sum is the value plus twice the absolute sum of the negative amounts. Where fields add up, the same
-- goes for each field.
local events, add_to_log = batch.events, nil
if events then
  -- For each member, twice the absolute sum of its negative amounts: in the log (`logged`), in the batch (`coming`).
  local group, negative = groups[1], {}
  local members, values, logged, coming, lower = group.members, group.values, {}, {}, fields and {}
  for i, amount in ipairs(events.amounts) do
    local member, below = events.members[i], below_zero(amount)
    if below > 0 then negative[member] = (negative[member] or 0) + below end
    if lower and below > 0 then  -- the sum of many amounts may be too large for digits
      local sums, values = lower[member] or {}, split(below)
      for k = 1, #fields do sums[k] = (sums[k] or 0) + values[k] end
      lower[member] = sums
    end
  end
  local held = (next(negative) or call('EXISTS', taken) == 1) and call('HMGET', taken, unpack(members)) or {}
  for i = 1, #members do
    logged[i], coming[i] = 2 * (tonumber(held[i]) or 0), 2 * (negative[members[i]] or 0)
    if not fields then widest = math.max(widest, values[i] + logged[i] + coming[i]) end
  end
  group.logged, group.coming, group.lower = logged, coming, lower

  function add_to_log()
    for member, amount in pairs(negative) do call('HINCRBY', taken, member, digits(amount)) end
    for i, member in ipairs(events.members) do
      if not zero_is_none then call('HINCRBY', taken, '\0' .. member, 1) end
      local event = struct.pack('>I5I3', board.offset, i) .. digits(events.amounts[i]) .. ' ' .. member
      call('ZADD', log, events.times[i] or now, event)
    end
  end
end
