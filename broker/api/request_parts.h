// The parts of parse_request(), one for each group of fields. Private to broker/api.
//
// All record what is wrong in `body` and leave `request` half filled then. Any thread.
#pragma once

#include "broker/api/fields.h"
#include "broker/api/request.h"

namespace broker {

/// Fields that would change the answer and that nothing here does: refused by name, unless they ask
/// for what happens anyway.
void refuse_unsupported(Endpoint endpoint, Fields& body);

/// temperature … logit_bias, and the seed.
void read_sampling(Fields& body, uint64_t random_seed, proto::Sampling& sampling);

/// prompt.
void read_prompts(Fields& body, const RequestLimits& limits, CompletionRequest& request);

/// messages, tools and what the template is told. `error` is where `body` records.
void read_chat(Fields& body, std::optional<ApiError>& error, CompletionRequest& request);

}  // namespace broker
