// The laws of the field as functions that return a `Residual`: give them your own feature map, transition, rotation or
// data.
#pragma once

#include <sympow/verify/algebra_laws.hpp>
#include <sympow/verify/batch_laws.hpp>
#include <sympow/verify/form_laws.hpp>
#include <sympow/verify/state_laws.hpp>
