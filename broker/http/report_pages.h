// What GET /status, GET /experts and GET /placement say, as JSON. docs/api.md has every field. Pure
// functions; any thread.
#pragma once

#include <vector>

#include "broker/gate.h"
#include "broker/http/response.h"
#include "broker/http/status_pages.h"
#include "broker/report.h"

namespace broker {

Response status_page(const ServedModel& model, const GroupStatus& status,
                     const ServerStatus& server);

Response experts_page(const ServerStatus& server);
Response placement_page(const std::vector<GroupPlacement>& groups);

}  // namespace broker
