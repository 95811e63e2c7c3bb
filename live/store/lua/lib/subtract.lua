-- Takes values from the scores of distinct members. Hidden members have no score. A member whose slots added up to zero
-- had no record. It gets a record if its score is no longer zero.
local function subtract(ranking, offset, members, values)
  local unseen = hidden_of(members)
  local names, old = look_up(ranking, members)
  local new = {}
  for i = 1, #members do
    local score = (old[i] or 0) - values[i]
    if unseen[i] then new[i] = false elseif score ~= 0 then new[i] = score end
  end
  put(ranking, offset, members, names, old, new)
end
