#!lua flags=no-writes
-- Counts the viewers of a board in all processes.
-- KEYS viewers
-- Request: ViewersRequest
-- Returns {total}
--@include reports
local total = reported(viewers, nil, request.ttl)
return {total}
