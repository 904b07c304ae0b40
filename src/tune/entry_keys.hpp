/// The keys of a cache entry, listed once for the writer and the reader: see plan_keys.hpp.
#pragma once

#include "flashoverlap/plan_cache.hpp"
#include "plan/json/plan_keys.hpp"

namespace flashoverlap {

void visit_keys(auto& visit, Maybe<TuningSite> auto& site) {
  visit("gpu", site.gpu);
  visit("compute_capability", site.compute_capability);
  visit("multiprocessors", site.multiprocessors);
  visit("driver", site.driver);
  visit("nccl", site.nccl);
  visit("library", site.library);
  visit("ranks", site.ranks);
  visit("hosts", site.hosts);
  visit("fabric", site.fabric);
  visit.unless_none("concurrent_collectives", site.concurrent_collectives, false);
}

void visit_keys(auto& visit, Maybe<CachedPlan> auto& entry) {
  visit("site", entry.site);
  visit("problem", entry.plan.problem);
  visit("reader", entry.plan.reader);
  visit("schedule", entry.plan.schedule);
  visit("tuned_us", entry.plan.tuned_us);
  visit("sequential_us", entry.plan.sequential_us);
  visit("predicted_us", entry.plan.predicted_us);
  visit("date", entry.plan.date);
}

}  // namespace flashoverlap
