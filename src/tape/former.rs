//! The gradients that leaves had before a backward pass, given back when a budget refuses the pass.
use crate::graph::{Tensor, Variable, is_any_limited};
use std::sync::Arc;

/// Leaves with their former gradients, which are held meanwhile; empty where no tape has a budget.
pub(super) struct Former(Vec<(Arc<Variable>, Option<Tensor>)>);

impl Former {
    /// Remembers the gradients of these leaves.
    pub fn of(leaves: &[(Arc<Variable>, Tensor)]) -> Former {
        if !is_any_limited() {
            return Former(Vec::new());
        }
        let mut former: Vec<(Arc<Variable>, Option<Tensor>)> = Vec::new();
        for (variable, _) in leaves {
            if !former.iter().any(|(v, _)| Arc::ptr_eq(v, variable)) {
                let grad = variable.grad();
                grad.iter().for_each(Tensor::hold);
                former.push((variable.clone(), grad));
            }
        }
        Former(former)
    }

    /// Gives them back.
    pub fn restore(&self) {
        for (variable, grad) in &self.0 {
            variable.set_grad(grad.clone());
        }
    }
}

impl Drop for Former {
    fn drop(&mut self) {
        self.0.iter().filter_map(|(_, grad)| grad.as_ref()).for_each(Tensor::unhold);
    }
}
