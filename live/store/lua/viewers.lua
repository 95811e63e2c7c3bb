#!lua flags=no-writes
-- Counts the viewers of a board in all processes.
-- KEYS[1] viewers — hash: process, "viewers time" of its last report, the time in milliseconds
-- Request: ViewersRequest
-- Returns {total}
local request = cmsgpack.unpack(ARGV[1])
local viewers = KEYS[1]
--@include reports
local total = reported(viewers, nil, request.ttl, milliseconds())
return {total}
